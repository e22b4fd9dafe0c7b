package dockertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Container is a container of the fake engine.
type Container struct {
	ID, Name        string
	Labels, Env     map[string]string
	State, Health   string
	ExitCode, PID   int
	NamespaceOf     string
	Networks        map[string]string // addresses by network
	Aliases         map[string][]string
	Ports           map[string]string // host:port by port of the container
	Paused          bool              // stopped by a signal
	Table           string            // nft's rules in its network namespace; empty: none
	IgnoresSIGTERM  bool
	FailsAtStarting bool
	IgnoresSTOP     bool
}

func (c *Container) signal(name string) error {
	if c.State != "running" {
		return fmt.Errorf("Container %s is not running", c.ID)
	}
	switch name {
	case "KILL":
		c.end(137)
	case "STOP":
		c.Paused = !c.IgnoresSTOP
	case "CONT":
		c.Paused = false
	}
	return nil
}

func (c *Container) end(code int) {
	c.State, c.ExitCode, c.PID, c.Paused, c.Table = "exited", code, 0, false, ""
}

func (c *Container) start() {
	if c.FailsAtStarting {
		c.end(2)
		return
	}
	c.State, c.ExitCode, c.PID = "running", 0, c.PID+1000
}

// inspected is the container in the words of docker inspect.
func (c *Container) inspected() any {
	type object = map[string]any
	var env []string
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, name+"="+c.Env[name])
	}
	networks, ports := object{}, object{}
	for name, ip := range c.Networks {
		n := object{"IPAddress": ip, "IPAMConfig": object{"IPv4Address": ip}}
		if c.State != "running" {
			n["IPAddress"] = ""
		}
		networks[name] = n
	}
	for port, addr := range c.Ports {
		i := strings.LastIndex(addr, ":")
		ports[port] = []object{{"HostIp": addr[:i], "HostPort": addr[i+1:]}}
	}
	mode := "default"
	if c.NamespaceOf != "" {
		mode = "container:" + c.NamespaceOf
	}
	state := object{"Status": c.State, "Pid": c.PID, "ExitCode": c.ExitCode}
	if c.Health != "" {
		state["Health"] = object{"Status": c.Health}
	}
	return object{
		"Id": c.ID, "Name": "/" + c.Name, "State": state,
		"Config":          object{"Labels": c.Labels, "Env": env},
		"HostConfig":      object{"NetworkMode": mode, "PortBindings": ports},
		"NetworkSettings": object{"Networks": networks, "Ports": object{}},
	}
}
