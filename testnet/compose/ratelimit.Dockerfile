# edgelimit in the place of envoyproxy/ratelimit's image: the same path of the program, the same environment, the same
# ports. Called by this name, the program is "edgelimit serve --from-env ratelimit".
FROM scratch
COPY ratelimit /bin/ratelimit
USER 65532:65532
EXPOSE 8080 8081 6070
ENTRYPOINT ["/bin/ratelimit"]
