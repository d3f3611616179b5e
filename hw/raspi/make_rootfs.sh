#!/bin/sh
# A 64-bit Raspberry Pi's system in a folder: Debian's Python for aarch64, NumPy and tflite-runtime. Nothing is installed
# on this machine and nothing needs root. For boards of transport "emulated" (hw/boards.example.toml).
#
#     apt install qemu-user-static mmdebstrap
#     PYTHON=python3.11 hw/raspi/make_rootfs.sh ~/aarch64
set -eu
root=${1:?usage: make_rootfs.sh FOLDER}
if [ -e "$root" ]; then
    echo "make_rootfs.sh: $root exists; remove it or name another folder" >&2
    exit 2
fi
partial="$root.partial"
trap 'rm -rf "$partial"' EXIT
rm -rf "$partial"
mmdebstrap --quiet --variant=extract --mode="$([ "$(id -u)" = 0 ] && echo root || echo unshare)" \
    --architectures=arm64 --include=python3,libstdc++6 bookworm "$partial"
mkdir -p "$partial/opt/quarl"
"${PYTHON:-python3}" -m pip install --quiet --target "$partial/opt/quarl" --only-binary :all: --no-deps \
    --platform manylinux_2_34_aarch64 --platform manylinux2014_aarch64 --python-version 3.11 --implementation cp \
    tflite-runtime==2.14.0 numpy==1.26.4
mv "$partial" "$root"
