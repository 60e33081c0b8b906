# One image for every process of Tokengrid; which one it is, the command says.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /tokengrid
COPY . .
RUN make .venv/ready

FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home tokengrid
COPY --from=build --chown=tokengrid /tokengrid /tokengrid
ENV PATH=/tokengrid/.venv/bin:$PATH PYTHONUNBUFFERED=1
USER tokengrid
WORKDIR /home/tokengrid
CMD ["tg-serve"]
