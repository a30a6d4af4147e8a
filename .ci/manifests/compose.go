package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

// loadCompose reads a file as Docker Compose does, with every profile. It sets each variable that has no default.
func loadCompose(path string) (*types.Project, error) {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields("POSTGRES_PASSWORD CONTROL_PASSWORD EDGE_PASSWORD REDIS_PASSWORD MATCH_TOKEN_KEYS LINK_BASE_URL") {
		options.Environment[name] = "x"
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return project, nil
}

// public are the ports that other machines may reach: clicks and TLS. All others must be published on 127.0.0.1 only.
var public = []string{"nginx:8080", "caddy:80", "caddy:443"}

// checkCompose checks the published ports, the TLS proxy, and the addresses.
func checkCompose(project *types.Project) error {
	var p problems
	addresses := map[string]string{}
	for name, service := range project.Services {
		for _, published := range service.Ports {
			if at := fmt.Sprintf("%s:%d", name, published.Target); published.HostIP != "127.0.0.1" && !slices.Contains(public, at) {
				p.add("compose.yaml: %s is published on every address of the machine", at)
			}
		}
		for network, attached := range service.Networks {
			switch {
			case network != "front":
			case attached == nil || attached.Ipv4Address == "":
				// Otherwise Docker would assign the first free address, which may be the fixed one of a service that starts later.
				p.add("compose.yaml: %s has no fixed address on the network front", name)
			case addresses[attached.Ipv4Address] != "":
				p.add("compose.yaml: %s and %s have the same address", name, addresses[attached.Ipv4Address])
			default:
				addresses[attached.Ipv4Address] = name
			}
		}
	}
	checkTLS(&p, project)
	return p.err()
}

// checkDemo requires that the demo, whose passwords are public, is published on 127.0.0.1 only, and that its services start in order.
func checkDemo(project *types.Project) error {
	var p problems
	published := map[uint32]bool{}
	for name, service := range project.Services {
		for _, one := range service.Ports {
			if one.HostIP != "127.0.0.1" {
				p.add("compose.demo.yaml: %s publishes port %d to other machines", name, one.Target)
			}
			published[one.Target] = true
		}
		for dependency := range service.DependsOn {
			if _, ok := project.Services[dependency]; !ok {
				p.add("compose.demo.yaml: %s depends on %s, which does not exist", name, dependency)
			}
		}
	}
	for _, port := range []uint32{8080, 8081, 8090} {
		if !published[port] {
			p.add("compose.demo.yaml: no service publishes port %d", port)
		}
	}
	for name, after := range map[string]string{"migrate": "postgres", "logins": "migrate", "control": "logins", "edge-1": "logins", "edge-2": "logins", "demo": "logins"} {
		if _, ok := project.Services[name].DependsOn[after]; !ok {
			p.add("compose.demo.yaml: %s does not start after %s", name, after)
		}
	}
	return p.err()
}

// checkTLS requires the profile "tls": a Caddy with our Caddyfile, whose X-Forwarded-For the programs trust.
func checkTLS(p *problems, project *types.Project) {
	caddy, ok := project.Services["caddy"]
	if !ok || !slices.Equal(caddy.Profiles, []string{"tls"}) {
		p.add("compose.yaml: no service caddy in the profile tls")
		return
	}
	if !slices.ContainsFunc(caddy.Volumes, func(v types.ServiceVolumeConfig) bool {
		return strings.HasSuffix(v.Source, "/proxy/Caddyfile") && v.Target == "/etc/caddy/Caddyfile"
	}) {
		p.add("compose.yaml: caddy does not mount proxy/Caddyfile")
	}
	for _, target := range []uint32{80, 443} {
		if !slices.ContainsFunc(caddy.Ports, func(c types.ServicePortConfig) bool { return c.Target == target && c.HostIP == "" }) {
			p.add("compose.yaml: caddy does not publish port %d", target)
		}
	}
	proxies := []string{"nginx", "caddy"}
	for name, service := range project.Services {
		trusted := service.Environment["TRUSTED_PROXIES"]
		if trusted == nil {
			continue
		}
		var expected []string
		for _, proxy := range proxies {
			if front := project.Services[proxy].Networks["front"]; front != nil {
				expected = append(expected, front.Ipv4Address)
			}
		}
		if *trusted != strings.Join(expected, ",") {
			p.add("compose.yaml: %s trusts %s, not the proxies %v", name, *trusted, expected)
		}
	}
}

// adminSettings are the variables with the scraped address, by the image of the program.
var adminSettings = map[string]string{"edge": "EDGE_ADMIN_ADDR", "control": "CONTROL_ADMIN_ADDR"}

// checkScrapeTargets requires that Prometheus, as a service of Compose, reaches every admin address in its example configuration, and that
// the example has every admin address.
func checkScrapeTargets(project *types.Project, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var p problems
	prometheus, ok := project.Services["prometheus"]
	if !ok {
		p.add("compose.yaml: no service prometheus")
	}
	scraped := map[string]bool{}
	for _, job := range config.ScrapeConfigs {
		for _, group := range job.StaticConfigs {
			for _, target := range group.Targets {
				name, number, err := net.SplitHostPort(target)
				if err != nil {
					p.add("%s: %w", path, err)
					continue
				}
				scraped[name] = true
				service, ok := project.Services[name]
				if !ok {
					p.add("%s: compose.yaml has no service %s", path, name)
					continue
				}
				listen := service.Environment[adminSettings[program(service)]]
				if listen == nil || *listen != ":"+number {
					p.add("compose.yaml: %s does not listen at %s for Prometheus", name, target)
				}
				if !slices.ContainsFunc(slices.Collect(maps.Keys(service.Networks)), func(n string) bool { _, shared := prometheus.Networks[n]; return shared }) {
					p.add("compose.yaml: prometheus and %s share no network", name)
				}
			}
		}
	}
	for name, service := range project.Services {
		if program(service) != "" && len(service.Command) == 0 && !scraped[name] {
			p.add("%s: does not scrape %s", path, name)
		}
	}
	return p.err()
}

// program returns which of the programs a service runs, or "".
func program(service types.ServiceConfig) string {
	if service.Build == nil {
		return ""
	}
	return service.Build.Target
}
