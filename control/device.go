package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"deeplink/control/internal/api"
	"deeplink/control/internal/store"
)

type deviceDeleteCommand struct {
	Org    string  `required:"" help:"Key of the organization."`
	Device string  `arg:"" optional:"" help:"Id of the device, as its SDK generated it."`
	User   *string `help:"Id of the user in the app: deletes the user and all current devices of the user."`
}

// Help implements kong's detailed help.
func (*deviceDeleteCommand) Help() string {
	return "Deletes the device, its sessions, and the user with the traits if this is the user's only device. With --user, deletes the user with the " +
		"traits, all current devices of the user, and their sessions. Events stay without device, user, session and properties: name, times, link and " +
		"revenue still count. The command reads all sessions and events of the organization, in short statements, and may take minutes; run it again if it " +
		"is interrupted. If the app still sends events, a new device appears. The audit trail records who ran it and when, but neither id; auditId names the entry " +
		"and is null when there was nothing to erase."
}

// Validate implements kong's check of a command.
func (c *deviceDeleteCommand) Validate() error {
	switch {
	case (c.Device == "") == (c.User == nil):
		return fmt.Errorf("name either a device or --user")
	case c.User == nil && !api.DeviceID.MatchString(c.Device):
		return fmt.Errorf("the device must be 1 to 128 letters, digits, or . _ : -")
	case c.User != nil:
		if n := utf8.RuneCountInString(*c.User); n < 1 || n > api.MaxUserID || !utf8.ValidString(*c.User) || strings.ContainsRune(*c.User, 0) {
			return fmt.Errorf("--user must have 1 to %d characters", api.MaxUserID)
		}
	}
	return nil
}

// deviceDeleted is the result of control device delete. It contains no id of the device or the user, so that it can be kept as a proof.
type deviceDeleted struct {
	OrgKey string `json:"orgKey"`
	store.Erased
}

// Run implements control device delete.
func (c *deviceDeleteCommand) Run(t *env) error {
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(pool, "")
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	o, err := organization(ctx, s, c.Org)
	if err != nil {
		return err
	}
	result := deviceDeleted{OrgKey: o.OrgKey}
	// No deadline: the time depends on the number of events. Each statement has its own bound.
	if c.User != nil {
		result.Erased, err = s.DeleteUser(t.ctx, operatorActor(), o.ID, *c.User)
	} else {
		result.Erased, err = s.DeleteDevice(t.ctx, operatorActor(), o.ID, c.Device)
	}
	if err != nil {
		return fmt.Errorf("the deletion is not complete, run it again: %w", err)
	}
	return t.print(result)
}
