package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"deeplink/deploy/stack"
)

// organization is the demo organization as ready.json shows it.
type organization struct {
	ID         string `json:"id"`
	OrgKey     string `json:"orgKey"`
	ExternalID string `json:"externalId"`
	ServerKey  string `json:"serverKey"`
	ClientKey  string `json:"clientKey"`
}

const (
	demoKey      = "demo"
	demoExternal = "org_demo"
)

// demoOrganization returns the demo organization, which the first start creates. Its raw keys can't be read back from the
// database, so they are stored in file; without the file they are regenerated.
func demoOrganization(ctx context.Context, s *stack.Stack, file string) (organization, error) {
	exists, id, err := findDemo(ctx, s)
	if err != nil {
		return organization{}, err
	}
	text, err := os.ReadFile(file)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return organization{}, err
	case err == nil && exists:
		var kept organization
		if err := json.Unmarshal(text, &kept); err == nil && kept.ID == id {
			return kept, nil
		}
	}
	var demo organization
	if exists {
		demo, err = reissue(ctx, s, id)
	} else {
		err = operate(ctx, s, &demo, "org", "create", "--name", "Demo", "--org-key", demoKey, "--external-id", demoExternal,
			"--plan", "scale", "--app-config", "demo")
	}
	if err != nil {
		return organization{}, err
	}
	return demo, writeJSON(file, demo)
}

func findDemo(ctx context.Context, s *stack.Stack) (exists bool, id string, err error) {
	var all []organization
	if err := operate(ctx, s, &all, "org", "list"); err != nil {
		return false, "", err
	}
	for _, o := range all {
		if o.OrgKey == demoKey {
			return true, o.ID, nil
		}
	}
	return false, "", nil
}

func reissue(ctx context.Context, s *stack.Stack, id string) (organization, error) {
	var server, client struct{ RawKey string }
	err := errors.Join(
		operate(ctx, s, &server, "key", "regenerate", demoKey, "SERVER"),
		operate(ctx, s, &client, "key", "regenerate", demoKey, "CLIENT"))
	return organization{ID: id, OrgKey: demoKey, ExternalID: demoExternal, ServerKey: server.RawKey, ClientKey: client.RawKey}, err
}

// consoleLink returns the address of the console and a link that signs in to the demo organization as owner.
func consoleLink(ctx context.Context, s *stack.Stack, controlURL string) (page, link string, err error) {
	var made struct{ URL string }
	err = operate(ctx, s, &made, "console-link", "--org", demoKey, "--role", "owner", "--ttl", "15m", "--console-url", controlURL)
	return controlURL + "/console", made.URL, err
}

// readOrCreateSessionKeys returns the CONSOLE_SESSION_KEYS in a file, and a new key on the first start: sessions outlive restarts.
func readOrCreateSessionKeys(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return strings.TrimSpace(string(text)), err
	}
	var key [32]byte
	rand.Read(key[:]) // never fails, by its contract
	keys := hex.EncodeToString(key[:])
	return keys, replace(file, []byte(keys+"\n"))
}

func operate(ctx context.Context, s *stack.Stack, into any, arguments ...string) error {
	out, err := s.Operate(ctx, s.Control, arguments...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("control %v printed no such JSON: %w", arguments, err)
	}
	return nil
}
