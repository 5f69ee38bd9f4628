#!/usr/bin/env bash
# Makes the image that the Dockerfile builds in, from Debian packages and the Rust toolchain that is installed here:
# for a machine that can run containers but pull no images. Elsewhere the Dockerfile's own default does.
#
#   tests/container/base_images.sh
#
# prints the image's name, for `docker build --build-arg BUILD_IMAGE=NAME`. The image stays in Docker and its name
# carries the toolchain's version, so only the first run is slow (about two minutes). Needs root, docker, debootstrap.
set -euo pipefail

release=bookworm
packages=gcc,libc6-dev,ca-certificates
authorities=/etc/ssl/certs/ca-certificates.crt
sysroot=$(rustc --print sysroot)
version=$(rustc --version | cut -d' ' -f2)
image=weir-test-build:$release-rust-$version
say() { printf '%s\n' "$*" >&2; }

if docker image inspect "$image" >/dev/null 2>&1; then
  printf '%s\n' "$image"
  exit 0
fi

say "making $image"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# The same mirror as this machine's own packages come from.
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $release" "Created-By: Packages" 2>/dev/null | head -n 1)
debootstrap --variant=minbase --include="$packages" "$release" "$root/debian" ${mirror:+"$mirror"} >"$root/log" 2>&1 ||
  { tail -n 20 "$root/log" >&2; say "debootstrap failed"; exit 1; }
rm -rf "$root"/debian/var/cache/apt/* "$root"/debian/var/lib/apt/lists/* "$root"/debian/usr/share/{doc,locale,man}
# Where crates come through a mirror with a certificate of its own, this machine trusts it already.
cp -L "$authorities" "$root/debian$authorities"
mkdir "$root/debian/opt/rust"
tar -C "$sysroot" --exclude=share -cf - . | tar -C "$root/debian/opt/rust" -xf -
tar -C "$root/debian" -cf - . | docker import --change 'ENV PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$image" >/dev/null
printf '%s\n' "$image"
