package fleet

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"deeplink/deploy/stack"
)

// BuildRevision builds control and edge of a git revision into dir. It checks the revision out into a temporary worktree and removes that
// afterwards. An empty revision stands for the working directory.
func BuildRevision(ctx context.Context, revision, dir string) (err error) {
	if revision == "" {
		return stack.Build(ctx, dir)
	}
	tree := dir + "-source"
	if out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, revision).CombinedOutput(); err != nil {
		return fmt.Errorf("check out %s: %w\n%s", revision, err, out)
	}
	defer func() {
		out, removing := exec.CommandContext(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree).CombinedOutput()
		if removing != nil {
			err = errors.Join(err, fmt.Errorf("remove the worktree of %s: %w\n%s", revision, removing, out))
		}
	}()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "deeplink/control", "deeplink/edge")
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", revision, err, out)
	}
	return nil
}

// Revision returns the abbreviated commit of a git revision. For an empty revision it is that of HEAD, with the suffix "-dirty" if the
// working directory has uncommitted changes.
func Revision(ctx context.Context, revision string) (string, error) {
	arguments := []string{"rev-parse", "--short=10", "--verify", revision + "^{commit}"}
	if revision == "" {
		arguments = []string{"describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"}
	}
	out, err := exec.CommandContext(ctx, "git", arguments...).Output()
	if err != nil {
		return "", fmt.Errorf("git knows no revision %q: %w", revision, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ModuleRoot returns the folder of the module that the working directory belongs to.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
