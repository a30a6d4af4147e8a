package main

import (
	"context"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
)

// checkCompose reads a file as Docker Compose does, which refuses what its schema does not know. Each variable that has no default is set.
func checkCompose(path string) (services int, err error) {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithName("deeplink"))
	if err != nil {
		return 0, err
	}
	for _, name := range strings.Fields("POSTGRES_PASSWORD CONTROL_PASSWORD EDGE_PASSWORD REDIS_PASSWORD MATCH_TOKEN_KEYS LINK_BASE_URL") {
		options.Environment[name] = "x"
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return 0, err
	}
	return len(project.Services), nil
}
