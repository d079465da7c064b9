#!/bin/bash
# /srv/gpt/night.sh
cd /srv/gpt || exit
id=$(date +%F) end=$(date -d '6 hours' +%s)
while gpurun --quiet --run-id "$id" --deadline "$end" --junit junit.xml train.toml; code=$?; [ $code = 75 ]; do
    [ $((end - $(date +%s))) -gt 1800 ] || break
    sleep 600
done
exit $code
