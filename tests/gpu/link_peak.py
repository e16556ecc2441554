"""The link's peak: host-to-device copies of 256 MiB of pinned memory, best of eight; and what the context alone takes."""
import torch

size = 256 << 20
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
source = torch.empty(size, dtype=torch.uint8, pin_memory=True)
target = torch.empty(size, dtype=torch.uint8, device="cuda")
begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
best = 0.0
for _ in range(8):
    begin.record()
    target.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    best = max(best, size / begin.elapsed_time(end) * 1e-6)
print(f"link peak {best:.2f} GB/s, context {(total - free) >> 20} MiB")
