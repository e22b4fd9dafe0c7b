# Redis where no image can be pulled: Debian's binaries, the shared libraries they need, their licence. "go run ./testnet build"
# gathers them under root/. Takes the same commands as the public image.
FROM scratch
COPY root/ /
USER 65532:65532
EXPOSE 6379
WORKDIR /tmp
CMD ["redis-server"]
