"""Judges our JSON Schema with the jsonschema package: it must be a valid schema, and agree with the expected verdicts.

usage: schema_judge.py SCHEMA.json CASES.json      CASES: [{"name": ..., "valid": ..., "document": ...}, ...]
"""
import json
import sys

import jsonschema


def main() -> int:
    with open(sys.argv[1]) as schema_file, open(sys.argv[2]) as cases_file:
        schema, cases = json.load(schema_file), json.load(cases_file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    wrong = 0
    for case in cases:
        errors = [error.message for error in validator.iter_errors(case["document"])]
        if bool(errors) == case["valid"]:
            wrong += 1
            print(f"{case['name']}: expected {'valid' if case['valid'] else 'invalid'}, found {errors or 'valid'}")
    print(f"{len(cases)} documents, {wrong} wrong")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
