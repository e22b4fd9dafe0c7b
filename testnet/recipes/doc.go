// Package recipes holds configurations with which proxies ask edgelimit about each request, and tests that run them with the real programs.
// They are meant to be copied: nginx.conf, haproxy.cfg with haproxy.lua, Caddyfile.
package recipes
