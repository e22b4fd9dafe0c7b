#!/bin/sh
# Debian passes "remove", RPM 0 when the last version goes. An upgrade stops nothing.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
	systemctl disable --now edgelimit.service edgelimit.socket edgelimit-grpc.socket || true
fi
