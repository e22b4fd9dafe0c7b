package docker

import (
	"net"
	"strings"
)

// inspected is what is read of docker container inspect.
type inspected struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status   string
		Pid      int
		ExitCode int
		Health   *struct{ Status string }
	}
	Config struct {
		Labels map[string]string
		Env    []string
	}
	HostConfig struct {
		NetworkMode  string
		PortBindings map[string][]binding
	}
	NetworkSettings struct {
		Ports    map[string][]binding
		Networks map[string]*struct {
			IPAddress  string
			IPAMConfig *struct{ IPv4Address string }
		}
	}
}

// binding is a published port.
type binding struct {
	HostIP   string `json:"HostIp"`
	HostPort string
}

func (i *inspected) container() Container {
	c := Container{
		ID: i.ID, Name: strings.TrimPrefix(i.Name, "/"), Labels: i.Config.Labels, Env: make(map[string]string),
		State: i.State.Status, ExitCode: i.State.ExitCode, PID: i.State.Pid,
		Addresses: make(map[string]string), Published: make(map[string]string),
	}
	if i.State.Health != nil {
		c.Health = i.State.Health.Status
	}
	c.NamespaceOf, _ = strings.CutPrefix(i.HostConfig.NetworkMode, "container:")
	if c.NamespaceOf == i.HostConfig.NetworkMode {
		c.NamespaceOf = ""
	}
	for _, pair := range i.Config.Env {
		name, value, _ := strings.Cut(pair, "=")
		c.Env[name] = value
	}
	for name, n := range i.NetworkSettings.Networks {
		c.Addresses[name] = n.IPAddress
		if n.IPAddress == "" && n.IPAMConfig != nil {
			c.Addresses[name] = n.IPAMConfig.IPv4Address
		}
	}
	// The ports in force are known while it runs only; those asked for, always.
	for _, ports := range []map[string][]binding{i.HostConfig.PortBindings, i.NetworkSettings.Ports} {
		for port, bindings := range ports {
			if len(bindings) > 0 {
				c.Published[port] = net.JoinHostPort(bindings[0].HostIP, bindings[0].HostPort)
			}
		}
	}
	return c
}
