package main

import (
	"fmt"
	"io"
	"strings"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/doctor"
)

type doctorCommand struct {
	serveCommand
	Format string `default:"text" enum:"text,json" help:"text: each check on a line. json: for programs."`
}

// Help implements kong's detailed help.
func (*doctorCommand) Help() string {
	return "It looks at the settings of control serve, at Postgres as the role of DATABASE_URL, at Redis, and at every edge, and changes nothing. " +
		"Each line says how a check ended (ok, warning or error), what was found and what to do. The exit code is 1 when there is an error."
}

// Run implements control doctor.
func (c *doctorCommand) Run(t *env) error {
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	keys, err := c.consoleSettings.keys()
	if err != nil {
		return err
	}
	result := doctor.Examine(t.ctx, c.store(pool), doctor.Options{
		LinkBaseURL: c.LinkBaseURL, RedisURL: c.RedisURL,
		Connections: int(c.Connections) + int(c.SDKConnections) + relayConnections + jobConnections + clicks.JobConnections + clicks.RequestConnections,
		Console: doctor.Console{
			URL: c.consoleSettings.URL, Issuer: c.OIDCIssuer, ClientID: c.ClientID, Scopes: strings.Fields(c.Scopes), Opens: keys.Knows,
		},
	})
	if c.Format == "json" {
		err = t.print(result)
	} else {
		_, err = io.WriteString(t.out, result.Text())
	}
	if err == nil && result.Errors > 0 {
		err = fmt.Errorf("%d errors and %d warnings", result.Errors, result.Warnings)
	}
	return err
}
