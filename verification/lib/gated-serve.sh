#!/bin/sh
# Stands in for `taskstats` where an experiment runs `serve`: the example `gated`, which is serve with its analyser held while
# the file $GATE exists. $GATED is the path of its binary.
shift # serve
exec "$GATED" "$@"
