#!/bin/sh
# Stands in for Miniforge's installer, which takes 100 MB: takes the same arguments and leaves a conda that says its name.
set -eu
prefix=
while [ $# -gt 0 ]; do
  case "$1" in
    -p) prefix=$2; shift ;;
    -b | -u) ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$prefix/bin"
printf '#!/bin/sh\necho conda 26.1.1\n' > "$prefix/bin/conda"
chmod 755 "$prefix/bin/conda"
