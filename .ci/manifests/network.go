package main

import (
	"fmt"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

type port struct {
	protocol core.Protocol
	number   int32
	what     string
}

// The ports that deploy/README.md and deploy/env use. The addresses are unknown, so the policies must allow all of them.
var (
	dns = []port{
		{core.ProtocolUDP, 53, "DNS, in the cluster, on the node (NodeLocal DNSCache) or PORTAL_DNS"}, {core.ProtocolTCP, 53, "DNS"},
		{core.ProtocolUDP, 5353, "the DNS pods of OpenShift"}, {core.ProtocolTCP, 5353, "the DNS pods of OpenShift"},
	}
	postgres = []port{{core.ProtocolTCP, 5432, "Postgres"}, {core.ProtocolTCP, 6432, "PgBouncer"}}
	redis    = []port{{core.ProtocolTCP, 6379, "Redis"}, {core.ProtocolTCP, 26379, "Sentinel"}}
	outside  = []port{{core.ProtocolTCP, 443, "the identity provider"}, {core.ProtocolTCP, 4318, "the OTLP collector"}}
)

var egress = map[string][][]port{
	"edge":    {dns, postgres, redis},
	"control": {dns, postgres, redis, outside},
	"migrate": {dns, postgres},
	"logins":  {dns, postgres},
}

// checkNetwork requires that the network policies let each program connect to what it needs.
func checkNetwork(c *cluster) error {
	var p problems
	for name, all := range map[string]objects{"base": c.base, "example overlay": c.overlay} {
		policies := pick[networking.NetworkPolicy](all)
		for _, w := range workloads(all) {
			for _, group := range egress[w.name] {
				for _, to := range group {
					open, err := leads(policies, w.pod.Labels, to)
					if err != nil {
						p.add("%s: %w", name, err)
					} else if !open {
						p.add("%s: no network policy lets %s reach %s %d at any address: %s", name, w.name, to.protocol, to.number, to.what)
					}
				}
			}
		}
	}
	return p.err()
}

// leads reports whether a policy that selects the pod opens the port to every address.
func leads(policies []*networking.NetworkPolicy, pod map[string]string, to port) (bool, error) {
	for _, one := range policies {
		selector, err := meta.LabelSelectorAsSelector(&one.Spec.PodSelector)
		if err != nil {
			return false, fmt.Errorf("network policy %s: %w", one.Name, err)
		}
		if !selector.Matches(labels.Set(pod)) {
			continue
		}
		for _, rule := range one.Spec.Egress {
			if len(rule.To) > 0 {
				continue
			}
			for _, open := range rule.Ports {
				if open.Protocol != nil && *open.Protocol == to.protocol && open.Port != nil && open.Port.IntVal == to.number {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
