#!/bin/sh
# Nothing is started, enabled or restarted here: that is the administrator's choice.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
