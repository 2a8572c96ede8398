#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""spack.py RECIPE: runs the recipe with a small stand-in for Spack.

Prints "dependency SPEC" for each library that every variant needs, and "option TEXT" for each
option of cmake without a variant. Exits with 1 if the recipe uses a name that Spack does not have.
"""
import ast
import sys
import types

DIRECTIVES = ("license", "version", "variant", "depends_on", "extends", "conflicts")
calls = []


class Spec:
    def satisfies(self, _text):
        return False


class CMakePackage:
    spec, stage = Spec(), types.SimpleNamespace(path="/stage")

    @staticmethod
    def define(name, value):
        kind, text = ("BOOL", "ON" if value else "OFF") if isinstance(value, bool) else ("STRING", value)
        return f"-D{name}:{kind}={text}"


def directive(name):
    return lambda *arguments, **named: calls.append((name, arguments, named))


def main():
    text = open(sys.argv[1]).read()
    classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    if classes != ["Efs"]:  # Spack derives the class from the name of the package
        sys.exit(f"{sys.argv[1]}: the class must be Efs, not {classes}")
    package = types.ModuleType("spack.package")
    for name in DIRECTIVES:
        setattr(package, name, directive(name))
    package.CMakePackage = CMakePackage
    package.join_path = lambda *parts: "/".join(parts)
    package.python_platlib = "lib/python3/site-packages"
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package})
    names = {}
    exec(compile(text, sys.argv[1], "exec"), names)
    for name, arguments, named in calls:
        if name == "depends_on" and "when" not in named and "type" not in named:
            print("dependency", arguments[0])
    for option in names["Efs"]().cmake_args():
        print("option", option)


main()
