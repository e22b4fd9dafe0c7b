# edgelimit from source, without Go on the host: one static binary in an image FROM scratch. From the top of the repository:
#
#   docker build --file testnet/compose/edgelimit.Dockerfile --tag edgelimit:local .
#
# PACKAGE is cmd/edgelimit for the product, testnet/node for the testnet's nodes. Where golang cannot be pulled,
# "go run ./testnet build" compiles what the first stage makes, and takes the last one alone.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG PACKAGE=./cmd/edgelimit VERSION=
RUN CGO_ENABLED=0 go build -trimpath -tags grpcnotrace,urfave_cli_no_docs \
    -ldflags "-s -w -X github.com/edgelimit/edgelimit/node.version=$VERSION" -o /out/edgelimit $PACKAGE
RUN mkdir -m 700 -p /out/own/data

FROM scratch
COPY --from=build /out/edgelimit /edgelimit
# A volume at /data belongs to the user: for the key file.
COPY --chown=65532:65532 --from=build /out/own/ /
USER 65532:65532
# Loopback would be the container's own: these are what "docker run -p 8080:8080" reaches, of serve (HTTP) and of proxy
# (LISTEN). The other listeners are off until they are asked for (EDGELIMIT_GRPC=:8081, EDGELIMIT_RESP=:6380, and
# EDGELIMIT_DASHBOARD=:7950, which is read only). That for operators stays on the container's loopback.
ENV EDGELIMIT_HTTP=:8080 EDGELIMIT_LISTEN=:8080 EDGELIMIT_HEALTH=:7948
EXPOSE 8080 7948 7946 7946/udp 7947 7947/udp
HEALTHCHECK --interval=5s --timeout=3s CMD ["/edgelimit", "health"]
ENTRYPOINT ["/edgelimit"]
CMD ["serve"]
