package testenv

// OlderTransactions is SQL that makes the transactions of the test's database look an hour older.
const OlderTransactions = `
	alter function open_transactions(interval) rename to present_transactions;
	create function open_transactions(at_least interval)
	returns table (pid integer, role text, database text, application text, state text, since timestamptz)
	language sql stable security definer set search_path = public, pg_temp as $$
		select p.pid, p.role, p.database, p.application, p.state, p.since - interval '1 hour'
		from present_transactions(at_least - interval '1 hour') p where p.database = current_database()
	$$;
	grant execute on function open_transactions(interval) to deeplink_control`

// LeaveOpen keeps a transaction open until the test ends.
func (w *Env) LeaveOpen(application string) {
	w.T.Helper()
	conn, err := w.Open(w.DB.URL + "&application_name=" + application).Acquire(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(conn.Release)
	if _, err := conn.Exec(w.T.Context(), `begin`); err != nil {
		w.T.Fatal(err)
	}
}
