# Toolchain: cross-compiles for aarch64 on Debian and Ubuntu (packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross) and
# runs the result under qemu-user.
#   cmake -S . -B build/aarch64 --toolchain cmake/aarch64.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/usr/aarch64-linux-gnu)
