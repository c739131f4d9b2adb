#!/bin/sh
# Builds a small disk that keeps muster-vm's guest contract, for tests: build.sh OUT.qcow2 [WORK]
# A FAT file system without partitions, with syslinux, Debian's kernel for clouds, and an initramfs of busybox, QEMU's guest agent, script for terminals, what keeps the
# guest contract, and the modules that are needed. Nothing is mounted and
# root is not needed. Needs Go, and Debian 12: apt-get (for packages that are not installed), dpkg-deb, cpio, qemu-img and busybox-static. Packages are kept in WORK.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath -m "$1")
work=$(realpath -m "${2:-$(dirname "$out")/work}")
mkdir -p "$work" "$(dirname "$out")"
cd "$work"
if ! ls boot.d/boot/vmlinuz-* boot.d/usr/bin/script >/dev/null 2>&1; then
	meta=linux-image-cloud-amd64
	kernel=$(apt-cache depends $meta | awk '/Depends: linux-image-6/ {print $2; exit}')
	[ -n "$kernel" ] || { echo "build.sh: apt knows no $meta: run apt-get update first" >&2; exit 1; }
	apt-get download "$kernel" syslinux syslinux-common mtools dosfstools \
		qemu-guest-agent bsdutils libc6 libglib2.0-0 libnuma1 libpcre2-8-0 libudev1 liburing2
	for d in ./*.deb; do dpkg-deb -x "$d" boot.d; done
fi
release=$(basename boot.d/lib/modules/*)
PATH=$work/boot.d/usr/bin:$work/boot.d/usr/sbin:$work/boot.d/sbin:$PATH

rm -rf root && mkdir -p root/bin root/dev root/proc root/sys root/mnt root/lib/modules root/run root/etc root/tmp
cp "$(command -v busybox)" root/bin/busybox
cp "$here/init" root/init
chmod 755 root/init
# GO may be several words.
(cd "$here" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 ${GO:-go} build -ldflags '-s -w' -o "$work/root/bin/contract" ./contract)
mkdir -p root/lib64 root/lib/x86_64-linux-gnu
cp boot.d/usr/sbin/qemu-ga boot.d/usr/bin/script root/bin/
cp -L boot.d/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 root/lib64/
for l in libc.so.6 libm.so.6 libglib-2.0.so.0 libgmodule-2.0.so.0 libnuma.so.1 libpcre2-8.so.0 libudev.so.1 liburing.so.2; do
	cp -L "$(find boot.d/lib boot.d/usr/lib -name "$l" | head -1)" root/lib/x86_64-linux-gnu/
done
# Each with what it depends on, in an order that insmod takes.
: >root/lib/modules/order
need() {
	file=$(cd boot.d/lib/modules/$release && find . -name "$1.ko" | head -1)
	[ -n "$file" ] || { echo "build.sh: the kernel has no module $1" >&2; exit 1; }
	grep -qx "$1.ko" root/lib/modules/order && return 0
	# busybox's modinfo cannot read a folder other than /lib/modules: the list lies in the file itself
	deps=$(tr '\0' '\n' <"boot.d/lib/modules/$release/$file" | sed -n 's/^depends=//p' | tr ',' ' ')
	for d in $deps; do
		# a module's file may be written with hyphens
		f=$(cd boot.d/lib/modules/$release && find . -name "$d.ko" -o -name "$(echo "$d" | tr _ -).ko" | head -1)
		(need "$(basename "$f" .ko)") || exit 1
	done
	cp "boot.d/lib/modules/$release/$file" root/lib/modules/
	echo "$1.ko" >>root/lib/modules/order
}
for m in virtio_pci virtio_net virtio_console button evdev virtio_scsi sd_mod sr_mod virtio_blk isofs virtiofs; do need $m; done
(cd root && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) | gzip -9n >initrd

cat >syslinux.cfg <<END
DEFAULT tiny
PROMPT 0
LABEL tiny
  KERNEL vmlinuz
  INITRD initrd
  APPEND console=ttyS0 quiet panic=1 tsc=reliable no_timer_check
END
rm -f disk.raw && truncate -s 24M disk.raw
mkfs.vfat -n TINY disk.raw >/dev/null
mcopy -i disk.raw boot.d/boot/vmlinuz-$release ::vmlinuz
mcopy -i disk.raw initrd syslinux.cfg ::
syslinux --install disk.raw
qemu-img convert -c -O qcow2 disk.raw "$out.new"
mv "$out.new" "$out"
echo "$out"
