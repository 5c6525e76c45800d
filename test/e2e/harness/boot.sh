# Boots systemd as PID 1. unshare starts this script in new namespaces. The root is this machine's root,
# read-only except for FOLDER, REPOSITORY and some folders in memory. UNITS is a folder with all unit files of the
# booted system, and ENABLE lists the units to enable. Never returns: becomes systemd, exits with 77 if this machine
# cannot boot systemd in this way, or exits with 1 if a unit cannot be enabled.
fail() { echo "no systemd can be booted here: $1"; exit 77; }
PATH=/usr/sbin:/usr/bin:/sbin:/bin
systemd=/usr/lib/systemd/systemd
[ -x $systemd ] || systemd=/lib/systemd/systemd
[ -x $systemd ] || fail 'no systemd is installed'
root=$FOLDER/root
mkdir -p "$root"
mount --bind / "$root" && mount -o remount,ro,bind "$root" || fail 'the root cannot be mounted read-only'
mount -t proc proc "$root/proc" || fail '/proc cannot be mounted'
mount -t sysfs -o ro sysfs "$root/sys" || fail '/sys cannot be mounted'
mount -t tmpfs tmpfs "$root/sys/fs/cgroup" 2>/dev/null
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || fail 'the control groups cannot be mounted'
for folder in run dev mnt; do mount -t tmpfs tmpfs "$root/$folder" || fail "/$folder cannot be mounted"; done
for device in null zero random urandom full tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device" || fail "/dev/$device cannot be mounted"
done
ln -s /proc/self/fd "$root/dev/fd"
for folder in "$REPOSITORY" "$FOLDER"; do
  mount --bind "$folder" "$root$folder" || fail "$folder cannot be mounted"
done
for folder in /etc/systemd/system /usr/lib/systemd/system; do
  mkdir -p "$root$folder"
  mount -t tmpfs tmpfs "$root$folder" || fail "$folder cannot be mounted"
done
cp "$UNITS"/* "$root/etc/systemd/system/"
mkdir "$root/mnt/old"
cd "$root" && pivot_root . mnt/old || fail 'the root cannot be changed'
umount -l /mnt/old
for unit in $ENABLE; do systemctl --root=/ enable "$unit" || exit 1; done
exec env -i container=unshare PATH=$PATH $systemd --unit=multi-user.target --log-target=null --show-status=0 < /dev/null
