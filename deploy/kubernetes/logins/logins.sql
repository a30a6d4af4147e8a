-- The login roles of the programs, with the passwords of $CONTROL_PASSWORD and $EDGE_PASSWORD. Run it as the owner, after `control migrate`,
-- which creates the group roles that have the rights. Run it again for new passwords:
--
--   psql --set=ON_ERROR_STOP=1 --file=deploy/logins.sql "$OWNER_URL"
\getenv control_password CONTROL_PASSWORD
\getenv edge_password EDGE_PASSWORD
-- Postgres takes an empty password for none: the role could not log in.
\set both `test -n "$CONTROL_PASSWORD" && test -n "$EDGE_PASSWORD" && echo yes || echo no`
\if :both
\else
do $$ begin raise exception 'CONTROL_PASSWORD and EDGE_PASSWORD must be set'; end $$;
\endif
-- Passwords must not get into the server's log. Only a superuser may set this; otherwise make sure that log_statement is none, which is
-- the default.
\o /dev/null
select set_config('log_statement', 'none', false), set_config('log_min_error_statement', 'panic', false)
where (select rolsuper from pg_roles where rolname = current_user);
\o

select format('create role %I login', name)
from (values ('deeplink_control_login'), ('deeplink_edge_login')) wanted (name)
where not exists (select from pg_roles where rolname = name) \gexec
grant deeplink_control to deeplink_control_login;
grant deeplink_edge to deeplink_edge_login;
alter role deeplink_control_login password :'control_password';
alter role deeplink_edge_login password :'edge_password';
