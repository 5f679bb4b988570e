#!/bin/busybox sh
# The first process of the emulated machine. It loads modules, mounts the files of the host (read-only)
# and the shared folder (writable, /run/share in the guest), and runs the script in that folder.
/bin/busybox mkdir -p /proc /sys /dev /host
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
for module in /modules/*; do
    insmod "$module" || echo "cannot load $module"
done
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "ro,cache=loose,$options" hostroot /host || echo "cannot mount the host's files"
mount -t tmpfs tmpfs /host/run
mkdir -p /host/run/share /host/run/tmp
mount -t 9p -o "$options" share /host/run/share || echo "cannot mount the shared folder"
mount -t proc proc /host/proc
mount -t sysfs sysfs /host/sys
mount -o bind /dev /host/dev
# libfabric looks up the name of the machine it runs on.
hostname rdma-vm
mount -o bind /host/run/share/hosts /host/etc/hosts
chroot /host /bin/sh /run/share/guest.sh
echo $? > /host/run/share/status
poweroff -f
