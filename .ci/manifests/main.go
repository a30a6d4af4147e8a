// Command manifests reads the files of deploy/ for Docker Compose, Kubernetes and Prometheus with the libraries of those programs, and
// checks that the parts match: published ports, network policies, jobs, secrets, the example overlay, the scrape targets and the image
// versions.
//
// kustomize builds each Kubernetes folder. The result is decoded into the API types, which reject unknown and duplicate fields.
//
//	manifests DEPLOY-FOLDER
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manifests DEPLOY-FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run reports all problems, not only the first.
func run(folder string) error {
	deploy, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	project, composeErr := loadCompose(filepath.Join(deploy, "compose.yaml"))
	demo, demoErr := loadCompose(filepath.Join(deploy, "compose.demo.yaml"))
	cluster, clusterErr := loadCluster(filepath.Join(deploy, "kubernetes"))
	if err := errors.Join(composeErr, demoErr, clusterErr); err != nil {
		return err
	}
	dockerfile := filepath.Join(deploy, "Dockerfile")
	if err := errors.Join(
		checkCompose(project),
		checkDemo(demo),
		checkBuilds(dockerfile, project, demo),
		checkScrapeTargets(project, filepath.Join(deploy, "prometheus", "prometheus.example.yml")),
		checkCluster(cluster),
		checkNetwork(cluster),
		checkImages(cluster, dockerfile, project, demo),
	); err != nil {
		return err
	}
	fmt.Printf("%d services of Compose, %d objects of Kubernetes\n", len(project.Services)+len(demo.Services), cluster.count())
	return nil
}

// problems collects the problems that the checks find.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (p problems) err() error { return errors.Join(p...) }
