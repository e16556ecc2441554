"""Two processes share a tensor through CUDA IPC (torch.multiprocessing): the child reads what the parent wrote, and
the parent what the child wrote."""
import torch
import torch.multiprocessing as mp

import common


def child(inbox, outbox):
    tensor = inbox.get()
    outbox.put(common.md5(tensor.cpu().numpy()))
    tensor.mul_(2)
    torch.cuda.synchronize()
    outbox.put("written")
    inbox.get()
    del tensor


if __name__ == "__main__":
    mp.set_start_method("spawn")
    tensor = torch.from_numpy(common.values(1, 4096, 2048)).cuda()
    other = torch.from_numpy(common.values(2, 8192, 8192)).cuda()
    inbox, outbox = mp.Queue(), mp.Queue()
    process = mp.Process(target=child, args=(inbox, outbox))
    process.start()
    inbox.put(tensor)
    print("share: the child read md5", outbox.get(timeout=90))
    outbox.get(timeout=90)
    print("share: the parent reads md5", common.md5(tensor.cpu().numpy()), common.md5(other.cpu().numpy()))
    inbox.put(None)
    process.join(60)
    print("share: child's exit code", process.exitcode)
