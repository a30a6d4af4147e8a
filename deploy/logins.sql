-- The login roles of the programs, as the owner, after `control migrate`:
--
--   CONTROL_PASSWORD=… EDGE_PASSWORD=… psql --no-psqlrc --set=ON_ERROR_STOP=1 --file=deploy/logins.sql "$OWNER_URL"
--
-- The statements are in a folder of Kubernetes, because kustomize reads no file outside its folder.
\ir kubernetes/logins/logins.sql
