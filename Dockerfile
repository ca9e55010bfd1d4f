# ninfer with the kit of one architecture. `make release` puts wheel and kits into dist/.
# No test builds this file: the image that tests build and run is that of `python -m tools.image`.
#
#   docker build --build-arg KIT=ninfer-0.1.0-cp312-x86_64-sm90.kit.tar.gz -t ninfer .
#   docker run --gpus all -p 127.0.0.1:8080:8080 -v "$PWD/models:/models:ro" ninfer \
#     serve /models/qwen3.6-27b.ninfer --host 0.0.0.0
FROM python:3.12-slim-bookworm

# Triton compiles a launcher in C for each kernel signature at the first start.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

ARG KIT
COPY dist/${KIT} /tmp/kit.tar.gz
# The sums in the kit are of every file; nothing of it is run before they hold.
RUN mkdir -p /opt/ninfer \
    && tar -xzf /tmp/kit.tar.gz -C /opt/ninfer --no-same-owner \
    && (cd /opt/ninfer && sha256sum --quiet --check SHA256SUMS) \
    && pip install --no-cache-dir --require-hashes -r /opt/ninfer/requirements.lock \
    && useradd --uid 10001 --no-create-home ninfer \
    && chown -R 10001:10001 /opt/ninfer/kernels \
    && rm /tmp/kit.tar.gz

ENV NINFER_KIT=/opt/ninfer \
    NINFER_PYTHON=/usr/local/bin/python3 \
    HOME=/tmp \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /tmp
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=10m \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["/opt/ninfer/bin/ninfer"]
CMD ["--help"]
