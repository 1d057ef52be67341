-- Makes each UPDATE of go_tasks to :status wait while somebody holds the advisory lock :key.
SELECT format(
    'CREATE FUNCTION experiment_gate() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(%s); RETURN NEW; END $$', :'key') \gexec
CREATE TRIGGER experiment_gate BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = :'status')
    EXECUTE FUNCTION experiment_gate();
