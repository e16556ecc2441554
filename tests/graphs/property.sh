#!/bin/sh
# property.sh FROM TO COUNTS SHIM DRIVER STACK: as ../engine/property.sh, of random programs that launch their layers as
# graphs: replayed, made anew, updated or set node by node, mixed with eager passes, several in turn.
STACK_OPTIONS='--graph --devices 1' exec "$(dirname "$0")/../engine/property.sh" "$@"
