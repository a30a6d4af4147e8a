package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/distribution/reference"
)

// exact matches a tag that registries do not move to another image: PostgreSQL versions have two numbers, the others three.
var (
	exact         = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-|$)`)
	exactPostgres = regexp.MustCompile(`^\d+\.\d+(-|$)`)
)

// checkImages requires a digest or an exact version for every image that is not built from this repository.
func checkImages(c *cluster, dockerfile string, projects ...*types.Project) error {
	var p problems
	for _, project := range projects {
		for name, service := range project.Services {
			if service.Build == nil {
				p.addIf(checkImage(service.Image), "%s: %s", project.Name, name)
			}
		}
	}
	for _, w := range append(workloads(c.base), workloads(c.overlay)...) {
		for _, container := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
			p.addIf(checkImage(container.Image), "kubernetes: %s", w.name)
		}
	}
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return err
	}
	for _, image := range baseImages(string(text)) {
		p.addIf(checkImage(image), "Dockerfile")
	}
	return p.err()
}

func (p *problems) addIf(err error, format string, args ...any) {
	if err != nil {
		p.add("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

func checkImage(image string) error {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return fmt.Errorf("%q: %w", image, err)
	}
	if _, pinned := named.(reference.Digested); pinned {
		return nil
	}
	version := exact
	if reference.Path(named) == "library/postgres" {
		version = exactPostgres
	}
	if tagged, ok := named.(reference.Tagged); !ok || !version.MatchString(tagged.Tag()) {
		return fmt.Errorf("image %s has neither a digest nor an exact version", image)
	}
	return nil
}

var (
	dockerArg  = regexp.MustCompile(`(?m)^ARG (\w+)=(\S+)$`)
	dockerFrom = regexp.MustCompile(`(?mi)^FROM (?:--\S+ )*(\S+)(?: AS (\S+))?$`)
	syntaxLine = regexp.MustCompile(`(?m)^# *syntax=(\S+)$`)
)

// checkBuilds requires that every image that Compose builds is a target of our Dockerfile.
func checkBuilds(dockerfile string, projects ...*types.Project) error {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return err
	}
	targets := map[string]bool{}
	for _, from := range dockerFrom.FindAllStringSubmatch(string(text), -1) {
		targets[from[2]] = true
	}
	var p problems
	for _, project := range projects {
		for name, service := range project.Services {
			switch {
			case service.Build == nil:
			case !targets[service.Build.Target]:
				p.add("%s: %s: the Dockerfile has no target %q", project.Name, name, service.Build.Target)
			case filepath.Join(service.Build.Context, service.Build.Dockerfile) != dockerfile && service.Build.Dockerfile != dockerfile:
				p.add("%s: %s is built from %s in %s, not from %s", project.Name, name, service.Build.Dockerfile, service.Build.Context, dockerfile)
			}
		}
	}
	return p.err()
}

// baseImages returns the images of a Dockerfile that come from a registry: those of FROM, and the frontend.
func baseImages(dockerfile string) (images []string) {
	for _, syntax := range syntaxLine.FindAllStringSubmatch(dockerfile, -1) {
		images = append(images, syntax[1])
	}
	values := map[string]string{}
	for _, arg := range dockerArg.FindAllStringSubmatch(dockerfile, -1) {
		values[arg[1]] = arg[2]
	}
	stages := []string{"scratch"}
	for _, from := range dockerFrom.FindAllStringSubmatch(dockerfile, -1) {
		image := os.Expand(from[1], func(name string) string { return values[name] })
		if !slices.Contains(stages, strings.ToLower(image)) {
			images = append(images, image)
		}
		stages = append(stages, strings.ToLower(from[2]))
	}
	return images
}
