-- +goose Up
-- `control doctor` compares the applied migrations with those of its release.
grant select on goose_db_version to deeplink_control;
