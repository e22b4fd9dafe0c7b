# The upstream service of the sidecar example. "go run ./testnet build" compiles it into the build context.
FROM scratch
COPY shop /shop
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["/shop"]
