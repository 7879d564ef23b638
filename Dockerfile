# An image for Spark on Kubernetes, from the wheel:
#   python3 -m pip wheel --no-deps --wheel-dir dist . && docker build -t kernelcoreset .
#   ./spark-submit.sh --master k8s://https://HOST:6443 --deploy-mode cluster \
#     --conf spark.kubernetes.container.image=kernelcoreset local:///opt/kernelcoreset/jobs/run.py --config s3a://bucket/job.toml
ARG SPARK=apache/spark:4.0.1-scala2.13-java17-python3-ubuntu
FROM ${SPARK}
USER root
COPY dist/*.whl /tmp/wheels/
# pyspark is part of the image already. The loops are compiled once, here.
RUN pip install --no-cache-dir /tmp/wheels/*.whl 'pandas>=2.2,<3' && rm -r /tmp/wheels
ENV NUMBA_CACHE_DIR=/opt/kernelcoreset/machine_code NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES= PYSPARK_PYTHON=python3
RUN python3 -m kernelcoreset.models.rehearsal && chmod -R a+rX /opt/kernelcoreset
COPY jobs /opt/kernelcoreset/jobs
COPY conf /opt/kernelcoreset/conf
USER spark
