# One image for every process of Tokengrid; which one it is, the command says.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN make install PREFIX=/opt/tokengrid

FROM python:3.12-slim
LABEL org.opencontainers.image.title=tokengrid org.opencontainers.image.version=0.1.0
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home tokengrid && chgrp 0 /home/tokengrid && chmod 775 /home/tokengrid
# Root's, and read-only for the user that runs it.
COPY --from=build /opt/tokengrid /opt/tokengrid
# A published port reaches 0.0.0.0 only. The gateway then asks for keys, unless its configuration says `auth = "off"`.
ENV PATH=/opt/tokengrid/bin:$PATH PYTHONUNBUFFERED=1 TOKENGRID_HOST=0.0.0.0 HOME=/home/tokengrid
# `tokengrid` by its number, which Kubernetes needs to see that it is not root. Any other user works, too: those that
# have no entry in /etc/passwd are of the group 0, which may write models into this home.
USER 1000
WORKDIR /home/tokengrid
EXPOSE 8888
CMD ["tg-serve"]
