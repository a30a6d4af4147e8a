package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// checkCluster checks the jobs, the settings, the references between objects and the Ingress of the example overlay.
func checkCluster(c *cluster) error {
	var p problems
	for name, all := range map[string]objects{"base": c.base, "example overlay": c.overlay} {
		checkJobs(&p, name, all)
		checkReferences(&p, name, all)
	}
	// A default would trust addresses that the operator has not checked.
	if value, ok := setting(c.base, "TRUSTED_PROXIES"); ok {
		p.add("kubernetes/serve: TRUSTED_PROXIES has the default %q; only an overlay knows the proxies", value)
	}
	if value, ok := setting(c.overlay, "TRUSTED_PROXIES"); !ok || value == "" {
		p.add("the example overlay does not set TRUSTED_PROXIES")
	}
	checkIngress(&p, c.overlay)
	return p.err()
}

// checkJobs requires that finished jobs are deleted automatically, and that a job creates the logins with logins.sql.
func checkJobs(p *problems, where string, all objects) {
	jobs := map[string]*batch.Job{}
	for _, job := range pick[batch.Job](all) {
		jobs[job.Name] = job
		if job.Spec.TTLSecondsAfterFinished == nil {
			p.add("%s: job %s has no ttlSecondsAfterFinished", where, job.Name)
		}
	}
	if jobs["migrate"] == nil {
		p.add("%s: no job migrate", where)
	}
	logins := jobs["logins"]
	if logins == nil {
		p.add("%s: no job logins", where)
		return
	}
	for _, volume := range logins.Spec.Template.Spec.Volumes {
		if volume.ConfigMap == nil {
			continue
		}
		for _, file := range pick[core.ConfigMap](all) {
			if file.Name == volume.ConfigMap.Name && strings.Contains(file.Data["logins.sql"], "deeplink_edge_login") {
				return
			}
		}
	}
	p.add("%s: job logins does not mount logins.sql", where)
}

// checkReferences requires that every Secret and ConfigMap that a pod uses exists and has the key.
func checkReferences(p *problems, where string, all objects) {
	known := map[string]map[string]bool{}
	for _, secret := range pick[core.Secret](all) {
		known["secret "+secret.Name] = keys(secret.StringData)
	}
	for _, config := range pick[core.ConfigMap](all) {
		known["config map "+config.Name] = keys(config.Data)
	}
	for _, w := range workloads(all) {
		need := func(object, key string) {
			if got, ok := known[object]; !ok || key != "" && !got[key] {
				p.add("%s: %s uses %s %s, which does not exist", where, w.name, object, key)
			}
		}
		for _, volume := range w.pod.Spec.Volumes {
			if volume.ConfigMap != nil {
				need("config map "+volume.ConfigMap.Name, "")
			}
		}
		for _, container := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
			for _, from := range container.EnvFrom {
				if from.SecretRef != nil {
					need("secret "+from.SecretRef.Name, "")
				}
				if from.ConfigMapRef != nil {
					need("config map "+from.ConfigMapRef.Name, "")
				}
			}
			for _, variable := range container.Env {
				if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
					need("secret "+variable.ValueFrom.SecretKeyRef.Name, variable.ValueFrom.SecretKeyRef.Key)
				}
			}
		}
	}
}

// setting returns a setting of the programs from the config maps.
func setting(all objects, name string) (value string, ok bool) {
	for _, config := range pick[core.ConfigMap](all) {
		if value, ok = config.Data[name]; ok {
			return value, true
		}
	}
	return "", false
}

// checkIngress requires an Ingress with TLS to the services of both programs.
func checkIngress(p *problems, all objects) {
	ports := map[string]bool{}
	for _, service := range pick[core.Service](all) {
		for _, port := range service.Spec.Ports {
			ports[service.Name+":"+port.Name] = true
		}
	}
	reached := map[string]bool{}
	for _, ingress := range pick[networking.Ingress](all) {
		var encrypted []string
		for _, tls := range ingress.Spec.TLS {
			encrypted = append(encrypted, tls.Hosts...)
		}
		for _, rule := range ingress.Spec.Rules {
			if !slices.Contains(encrypted, rule.Host) {
				p.add("ingress %s: no certificate for %q", ingress.Name, rule.Host)
			}
			for _, path := range rule.HTTP.Paths {
				backend := path.Backend.Service
				if name := fmt.Sprintf("%s:%s", backend.Name, backend.Port.Name); !ports[name] {
					p.add("ingress %s: no service port %s", ingress.Name, name)
				}
				reached[backend.Name] = true
			}
		}
	}
	for _, program := range []string{"control", "edge"} {
		if !reached[program] {
			p.add("example overlay: no Ingress leads to %s", program)
		}
	}
}

func keys(data map[string]string) map[string]bool {
	all := map[string]bool{}
	for key := range maps.Keys(data) {
		all[key] = true
	}
	return all
}
