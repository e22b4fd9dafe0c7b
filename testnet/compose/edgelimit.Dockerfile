# A node: one static binary and nothing else. "go run ./testnet build" compiles it into the build context.
FROM scratch
COPY edgelimit /edgelimit
USER 65532:65532
EXPOSE 8080 9100 7946 7946/udp 7947 7947/udp
HEALTHCHECK --interval=5s --timeout=3s CMD ["/edgelimit", "health"]
ENTRYPOINT ["/edgelimit"]
CMD ["serve"]
