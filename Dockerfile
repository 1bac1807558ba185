# syntax=docker/dockerfile:1
# The gateway, small and without rights:
#   docker build -t odar .                              # for models elsewhere (vLLM, Ollama, APIs)
#   docker build -t odar --build-arg WEIGHTS=1 .        # with the local models, 1.7 GB more
#   docker build -t odar:evals --build-arg EVALS=1 .    # with the extra [evals] and the recordings: makes the tables of the docs
#   docker run --rm -v odar:/var/lib/odar odar keys create me      # it listens to others only once there is a key
#   docker run --read-only --tmpfs /tmp -v odar:/var/lib/odar -p 8088:8088 odar
# See docs/guides/deploy.md.

ARG PYTHON=3.11-slim-bookworm
ARG WEIGHTS=0
ARG EVALS=0

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/odar
# Wheels with these hashes and no others (`make lock`): odar's dependencies, and hatchling, which builds odar. They
# change less often than the code, so they are a layer of their own.
COPY deploy/requirements.txt deploy/requirements.txt
RUN /opt/odar/bin/pip install --require-hashes --only-binary=:all: -r deploy/requirements.txt
# Nobody here runs other people's tests or compiles against their headers: 120 MB less.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends binutils && rm -rf /var/lib/apt/lists/* \
    && find /opt/odar/lib -type d -name tests -prune -exec rm -rf {} + \
    && find /opt/odar/lib -regex '.*\.\(pyx\|pxd\|pyi\|cpp\|c\|h\|hpp\)' -delete \
    && strip --strip-unneeded /opt/odar/lib/python*/site-packages/xllamacpp/*.so
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
RUN /opt/odar/bin/pip install --no-deps --no-build-isolation . && /opt/odar/bin/pip uninstall --yes hatchling

FROM python:${PYTHON} AS weights-0
COPY --from=build /opt/odar /opt/odar
ENV PATH=/opt/odar/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/odar \
    ODAR_CACHE_DIR=/opt/odar/cache \
    ODAR_GATEWAY_HOST=0.0.0.0 \
    ODAR_STORE_URL=/var/lib/odar/odar.db
RUN groupadd --gid 10001 odar \
    && useradd --uid 10001 --gid odar --home-dir /var/lib/odar --shell /usr/sbin/nologin odar \
    && install -d -o odar -g odar -m 0700 /var/lib/odar

FROM weights-0 AS weights-1
RUN odar pull local tiny

# hadolint ignore=DL3006
FROM weights-${WEIGHTS} AS evals-0

FROM evals-0 AS evals-1
COPY deploy/requirements-evals.txt /opt/odar/
RUN /opt/odar/bin/pip install --no-cache-dir --require-hashes --only-binary=:all: --no-deps -r /opt/odar/requirements-evals.txt
COPY runs /opt/odar/runs
COPY docs/data /opt/odar/docs/data

# hadolint ignore=DL3006
FROM evals-${EVALS}
LABEL org.opencontainers.image.title="odar" \
      org.opencontainers.image.description="As much model compute as each question needs, and no more." \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001
WORKDIR /var/lib/odar
VOLUME /var/lib/odar
EXPOSE 8088
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('ODAR_GATEWAY_PORT', '8088') + '/healthz', timeout=2)"]
ENTRYPOINT ["odar"]
CMD ["serve", "--log-format", "json"]
