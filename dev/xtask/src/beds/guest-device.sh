# The script of the guest sources this file: a verbs device in software, on a device without network.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/tmp TMPDIR=/run/tmp
ulimit -l unlimited
ip link set lo up
[ -e /sys/class/net/dummy0 ] || ip link add dummy0 type dummy
ip link set dummy0 mtu 4200
ip address add "$RXE_ADDRESS/24" dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0 || exit 125
# Creates the files of the device if the kernel has not.
for device in /sys/class/infiniband_verbs/uverbs*; do
    name=/dev/infiniband/${device##*/}
    [ -e "$name" ] || { mkdir -p /dev/infiniband; mknod "$name" c $(tr : ' ' < "$device/dev"); }
done
[ -e /dev/infiniband/rdma_cm ] || mknod /dev/infiniband/rdma_cm c $(tr : ' ' < /sys/class/misc/rdma_cm/dev)
echo "soft-RoCE is ready after $(cut -d' ' -f1 /proc/uptime) s"
