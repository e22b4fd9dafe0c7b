# One static binary and nothing else. "go run ./testnet build" compiles it into the build context: cmd/edgelimit for the
# product, testnet/node for the testnet's nodes.
FROM scratch
COPY edgelimit /edgelimit
USER 65532:65532
# Loopback would be the container's own: these are what "docker run -p 8080:8080" reaches. The other listeners
# are off until they are asked for (EDGELIMIT_GRPC=:8081, EDGELIMIT_RESP=:6380).
ENV EDGELIMIT_HTTP=:8080 EDGELIMIT_HEALTH=:9100
EXPOSE 8080 9100 7946 7946/udp 7947 7947/udp
HEALTHCHECK --interval=5s --timeout=3s CMD ["/edgelimit", "health"]
ENTRYPOINT ["/edgelimit"]
CMD ["serve"]
