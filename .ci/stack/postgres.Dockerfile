# Debian's PostgreSQL with the interface of the official image that the stack uses.
FROM python:3.11-slim-bookworm
RUN echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io \
    && apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-15 >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/* \
    && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data \
    && chmod 3777 /var/run/postgresql
COPY postgres-start /usr/local/bin/postgres-start
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data
USER postgres
CMD ["postgres-start"]
