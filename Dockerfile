# One image for every process of Tokengrid; which one it is, the command says.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN make install PREFIX=/opt/tokengrid

FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home tokengrid
# Root's, and read-only for the user that runs it.
COPY --from=build /opt/tokengrid /opt/tokengrid
# A published port reaches 0.0.0.0 only. The gateway then asks for keys, unless its configuration says `auth = "off"`.
ENV PATH=/opt/tokengrid/bin:$PATH PYTHONUNBUFFERED=1 TOKENGRID_HOST=0.0.0.0
USER tokengrid
WORKDIR /home/tokengrid
EXPOSE 8888
CMD ["tg-serve"]
