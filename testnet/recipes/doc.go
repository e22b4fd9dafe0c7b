// Package recipes holds configurations with which proxies ask edgelimit about each request, and tests of them. They are meant to be copied:
//
//	nginx.conf, haproxy.cfg with haproxy.lua, Caddyfile    run by the tests with the real programs
//	traefik.yaml with traefik-dynamic.yaml, apisix.yaml    read by stand-ins that ask and answer as these are documented to
//	envoy.yaml                                             checked against Envoy's own schema as well
package recipes
