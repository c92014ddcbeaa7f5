#!/usr/bin/env bash
# Installs to a fresh prefix and builds main.c against it: with cc and pkg-config, and with find_package.
#   test.sh CMAKE BUILD_FOLDER
set -euo pipefail
cmake=$1 build=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" >/dev/null
# The tree may be moved afterwards.
mv "$work/first" "$work/prefix"
pc=$(dirname "$(find "$work/prefix" -name rejoin.pc)")
lib=$(dirname "$pc")

expect() {
  found=$("$@")
  [[ "$found" == 'rejoin '*' recorded 1' ]] || { echo "$*: $found" >&2; exit 1; }
}

export PKG_CONFIG_PATH=$pc
# shellcheck disable=SC2046
cc -std=gnu11 -Wall -Werror "$here/main.c" -o "$work/plain" $(pkg-config --cflags --libs rejoin)
LD_LIBRARY_PATH=$lib expect "$work/plain"
# shellcheck disable=SC2046
cc -std=gnu11 -Wall -Werror "$here/main.c" -o "$work/linked" $(pkg-config --cflags rejoin) "$lib/librejoin.a" -lpthread -ldl -lm
expect "$work/linked"

"$cmake" -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
"$cmake" --build "$work/build" >/dev/null
expect "$work/build/shared"
expect "$work/build/static"
"$work/prefix/bin/rejoin" --version
