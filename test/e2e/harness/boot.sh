# Boots systemd as PID 1 in namespaces of its own (unshare starts this), on this machine's root, which is read-only
# except for FOLDER. UNITS is a folder with all unit files of this system. Never returns; exits with 77 if this machine
# permits no such container.
fail() { echo "no systemd can be booted here: $1"; exit 77; }
PATH=/usr/sbin:/usr/bin:/sbin:/bin
systemd=/usr/lib/systemd/systemd
[ -x $systemd ] || systemd=/lib/systemd/systemd
[ -x $systemd ] || fail 'no systemd is installed'
root=$FOLDER/root
mkdir -p "$root"
mount --bind / "$root" && mount -o remount,ro,bind "$root" || fail 'no mounts'
mount -t proc proc "$root/proc" || fail 'no /proc'
mount -t sysfs -o ro sysfs "$root/sys" || fail 'no /sys'
mount -t tmpfs tmpfs "$root/sys/fs/cgroup" 2>/dev/null
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || fail 'no control groups'
for folder in run dev mnt; do mount -t tmpfs tmpfs "$root/$folder" || fail "no /$folder"; done
for device in null zero random urandom full tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device" || fail "no /dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
for folder in "$REPOSITORY" "$FOLDER"; do
  mount --bind "$folder" "$root$folder" || fail "no $folder"
done
for folder in /etc/systemd/system /usr/lib/systemd/system; do
  mkdir -p "$root$folder"
  mount -t tmpfs tmpfs "$root$folder" || fail "no $folder"
done
cp "$UNITS"/* "$root/etc/systemd/system/"
mkdir "$root/mnt/old"
cd "$root" && pivot_root . mnt/old || fail 'no other root'
umount -l /mnt/old
for unit in $ENABLE; do systemctl --root=/ enable "$unit" || exit 1; done
exec env -i container=unshare PATH=$PATH $systemd --unit=multi-user.target --log-target=null --show-status=0 < /dev/null
