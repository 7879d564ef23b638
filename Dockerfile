# An image for Spark on Kubernetes, from the wheel:
#   python3 -m pip wheel --no-deps --wheel-dir dist . && docker build -t kernelcoreset .
#   ./spark-submit.sh --master k8s://https://HOST:6443 --deploy-mode cluster \
#     --conf spark.kubernetes.container.image=kernelcoreset local:///opt/kernelcoreset/jobs/run.py --config s3a://bucket/job.toml
ARG SPARK=apache/spark:4.0.1-scala2.13-java17-python3-ubuntu
FROM ${SPARK}
ARG PYTHON=3.12
USER root
# Spark's images are Ubuntu 22.04: its Python 3.10 is older than the wheel needs. This one is first on the path, because
# Spark hands the name that the submitting side uses, python3, to the driver.
ENV UV_PYTHON_INSTALL_DIR=/opt/kernelcoreset/pythons
RUN pip install --no-cache-dir uv && uv venv --python ${PYTHON} /opt/kernelcoreset/python
ENV PATH=/opt/kernelcoreset/python/bin:${PATH} PYSPARK_PYTHON=python3
COPY dist/*.whl /tmp/wheels/
# pyspark is part of the image already.
RUN uv pip install --no-cache --python /opt/kernelcoreset/python /tmp/wheels/*.whl 'pandas>=2.2,<3' && rm -r /tmp/wheels
# The loops are compiled once, here.
ENV NUMBA_CACHE_DIR=/opt/kernelcoreset/machine_code NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=
RUN python3 -m kernelcoreset.models.rehearsal && chmod -R a+rX /opt/kernelcoreset
COPY jobs /opt/kernelcoreset/jobs
COPY conf /opt/kernelcoreset/conf
USER spark
